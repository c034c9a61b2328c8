// The bus of SDK 2.x, on which servers publish changes to `subscriptions/listen` streams: events of ours there and back.

import type { ChangeEvent } from '../layer/contract.js'

export type BusEvent =
  | { kind: 'tools_list_changed' | 'prompts_list_changed' | 'resources_list_changed' }
  | { kind: 'resource_updated', uri: string }

/** `ServerEventBus` of SDK 2.x. */
export interface EventBus {
  publish (event: BusEvent): void
  subscribe (listener: (event: BusEvent) => void): () => void
}

export function busEventOf ({ kind, uri }: ChangeEvent): BusEvent {
  return kind === 'resource' ? { kind: 'resource_updated', uri: uri! } : { kind: `${kind}_list_changed` }
}

export function changeOf (event: BusEvent): ChangeEvent {
  if (event.kind === 'resource_updated') return { kind: 'resource', uri: event.uri }
  return { kind: event.kind.slice(0, event.kind.indexOf('_')) as 'tools' | 'prompts' | 'resources' }
}
