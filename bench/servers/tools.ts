// The tools of data.ts in zod, for servers that take zod, and their handlers.

import { z } from 'zod'
import { rows, slowMs } from './data.js'

export const echoShape = { text: z.string() }
export const bigShape = { rows: z.array(z.object({ id: z.number().int(), name: z.string(), region: z.string(), tags: z.array(z.string()), score: z.number() })) }
export const plainShape = {
  provider: z.enum(['aws', 'azure', 'gcp']).describe('The cloud provider to look at'),
  region: z.string().min(1).max(64).optional().describe('Region as the provider names it'),
  limit: z.number().int().min(1).max(500).optional().describe('How many entries to return at most'),
  include_tags: z.boolean().optional().describe('Return the tags of every entry too'),
  cursor: z.string().optional().describe('Where the last page ended'),
  severity: z.enum(['low', 'medium', 'high', 'critical']).optional()
}

export interface TextResult { [key: string]: unknown, content: { type: 'text', text: string }[] }

export function said (text: string): TextResult {
  return { content: [{ type: 'text', text }] }
}

export function big (): TextResult & { structuredContent: { rows: typeof rows } } {
  return { content: [{ type: 'text', text: `${rows.length} rows` }], structuredContent: { rows } }
}

export function pause (): Promise<void> {
  return new Promise((resolve) => { setTimeout(resolve, slowMs) })
}

export const manyTools = process.env.TOOLS === '73'
