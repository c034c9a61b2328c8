// The byte layout of a sealed state, written down a second time: tests open what the server seals, and seal what it must not open.
// v1. + base64url(key id[4] ‖ nonce[12] ‖ AES-256-GCM ciphertext ‖ tag[16]).

import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto'

export const PREFIX = 'v1.'
const KID = 4
const NONCE = 12
const TAG = 16

export interface Claims {
  v: number
  iat: number
  exp: number
  m: string
  t: string
  a: string
  s: string
  aud: string
  p: string
}

function keyOf (secret: string | Uint8Array): { key: Buffer, kid: Buffer } {
  const key = Buffer.from(hkdfSync('sha256', Buffer.from(secret), Buffer.alloc(0), 'mcp/request-state/v1/aes-256-gcm', 32))
  const kid = createHash('sha256').update('mcp/request-state/v1/kid:').update(key).digest().subarray(0, KID)
  return { key, kid }
}

export function kidOf (secret: string | Uint8Array): string {
  return keyOf(secret).kid.toString('hex')
}

/** Text as claims, sealed as the server would. */
export function sealText (secret: string | Uint8Array, text: string, prefix = PREFIX): string {
  const { key, kid } = keyOf(secret)
  const nonce = randomBytes(NONCE)
  const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.concat([Buffer.from(prefix), kid]))
  return prefix + Buffer.concat([kid, nonce, cipher.update(text), cipher.final(), cipher.getAuthTag()]).toString('base64url')
}

export function seal (secret: string | Uint8Array, claims: Record<string, unknown>): string {
  return sealText(secret, JSON.stringify(claims))
}

export function unseal (secret: string | Uint8Array, token: string): Claims {
  const { key, kid } = keyOf(secret)
  const bytes = bytesOf(token)
  const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(KID, KID + NONCE))
    .setAAD(Buffer.concat([Buffer.from(PREFIX), kid])).setAuthTag(bytes.subarray(-TAG))
  return JSON.parse(Buffer.concat([decipher.update(bytes.subarray(KID + NONCE, -TAG)), decipher.final()]).toString())
}

export function bytesOf (token: string): Buffer {
  return Buffer.from(token.slice(PREFIX.length), 'base64url')
}

/** First 16 bytes of SHA-256, as text. */
export function shortHash (...parts: (string | Uint8Array)[]): string {
  return hash(parts).toString('base64url')
}

/** How a state names its principal. */
export function principalClaim (identity: string, salt = randomBytes(8)): string {
  return Buffer.concat([salt, hash(['mcp/request-state/principal:', salt, identity])]).toString('base64url')
}

function hash (parts: (string | Uint8Array)[]): Buffer {
  const sum = createHash('sha256')
  for (const part of parts) sum.update(part)
  return sum.digest().subarray(0, 16)
}
