// subscriptions/listen (2026): an acknowledgement, then one notification per change, each tagged with the request's id,
// until the client leaves, cancels, or the server ends it with its final result: when it closes, or the caller's credentials end.

import type { Change } from '../../backplane/index.js'
import type { Params, Result } from '../../jsonrpc.js'
import { codes, isObject, RpcError } from '../../jsonrpc.js'
import { atExpiry } from '../../principal.js'
import type { Call } from '../call.js'
import type { Listen } from '../changes.js'
import { changeNotification, Subscriber } from '../changes.js'
import { META } from '../era.js'
import { invalidParams } from '../params.js'
import { stamp } from '../wire.js'

interface Filter { toolsListChanged?: true, promptsListChanged?: true, resourcesListChanged?: true, resourceSubscriptions?: string[] }

const MAX_URIS = 1024

/** What of the wish is honoured: flags that are exactly `true`, and URIs that are text. */
function honoured (wish: Record<string, unknown>): Filter {
  const { resourceSubscriptions: uris } = wish
  const texts = Array.isArray(uris) ? uris.filter((uri): uri is string => typeof uri === 'string').slice(0, MAX_URIS) : []
  return {
    ...(wish.toolsListChanged === true && { toolsListChanged: true }),
    ...(wish.promptsListChanged === true && { promptsListChanged: true }),
    ...(wish.resourcesListChanged === true && { resourcesListChanged: true }),
    ...(texts.length > 0 && { resourceSubscriptions: texts })
  }
}

const nothing = (): void => {}

/**
 * Tells a layer that has to do something for it whose updates are wanted. A URI that it refuses is not honoured.
 * Returns what tells it that they are wanted no more.
 */
async function watch (call: Call, filter: Filter): Promise<() => void> {
  const { layer } = call.server
  const { resourceSubscriptions: uris } = filter
  if (layer.subscribe === undefined || uris === undefined) return nothing
  const outcomes = await Promise.allSettled(uris.map(async (uri) => layer.subscribe!(uri, call)))
  const granted = uris.filter((_uri, at) => outcomes[at]!.status === 'fulfilled')
  if (granted.length > 0) filter.resourceSubscriptions = [...granted]
  else delete filter.resourceSubscriptions
  if (granted.length === 0) return nothing
  return () => {
    for (const uri of granted.splice(0)) Promise.resolve(layer.unsubscribe?.(uri, call)).catch((error) => call.log.debug({ err: error, uri }, 'a subscription could not be ended'))
  }
}

/** One that is open. It is over when its client leaves or cancels, when it is finished here, or when its caller's credentials end. */
class OpenListen extends Subscriber implements Listen {
  readonly #call: Call
  readonly #filter: Filter
  readonly #uris: ReadonlySet<string> | undefined
  readonly #meta: Record<string, unknown>
  readonly #unwatch: () => void
  readonly #settle: () => void
  readonly #forgetExpiry: () => void

  constructor (call: Call, filter: Filter, meta: Record<string, unknown>, unwatch: () => void, settle: () => void) {
    super()
    this.#call = call
    this.#filter = filter
    this.#uris = filter.resourceSubscriptions && new Set(filter.resourceSubscriptions)
    this.#meta = meta
    this.#unwatch = unwatch
    this.#settle = settle
    this.#forgetExpiry = atExpiry(call.principal, () => this.finish())
  }

  protected wants ({ kind, uri }: Change): boolean {
    return kind === 'resource' ? this.#uris?.has(uri!) === true : this.#filter[`${kind}ListChanged`] === true
  }

  protected deliver (change: Change): void | Promise<void> {
    return this.#call.notify(changeNotification(change, this.#meta))
  }

  protected overflowed (): void {
    this.#call.server.changes.warnOverflow('listen stream')
  }

  finish (): void {
    this.#forgetExpiry()
    this.#call.server.changes.removeListen(this)
    this.#unwatch()
    this.#settle()
  }
}

export async function listen (call: Call, params: Params): Promise<Result> {
  const { notifications } = params
  if (!isObject(notifications)) throw invalidParams('subscriptions/listen requires a notifications filter')
  const filter = honoured(notifications)
  const meta = { [META.subscriptionId]: call.requestId }
  const unwatch = await watch(call, filter)
  await new Promise<void>((resolve, reject) => {
    if (call.ended) return resolve(unwatch())
    const opened = new OpenListen(call, filter, meta, unwatch, resolve)
    if (!call.server.changes.addListen(opened)) {
      reject(new RpcError(codes.internalError, 'Subscription limit reached'))
      return opened.finish()
    }
    call.listening = opened
    void call.notify({ jsonrpc: '2.0', method: 'notifications/subscriptions/acknowledged', params: { notifications: filter, _meta: meta } })
  })
  return stamp({ _meta: meta }, call.server.serverInfo(call.protocolVersion), undefined)
}
