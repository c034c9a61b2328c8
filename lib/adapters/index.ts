// Public entry point `cloudg-mcp/adapters`: into and out of other MCP servers. No SDK is imported.

export { bindFactory, registerInto } from './bind.js'
export type { Binding, BindOptions, BoundFactory } from './bind.js'
export type { AuthInfo, AuthOf } from './caller.js'
export { detectServer } from './detect.js'
export type { Detected } from './detect.js'
export type { BusEvent, EventBus } from './events.js'
export { exportDefinitions } from './export.js'
export type { AiSdkTool, AnthropicTool, CallOptions, Exported, ExportOptions, OpenAiTool } from './export.js'
export { HostedLayer, hostServer } from './host.js'
export type { HostOptions } from './host.js'
export type { Family } from './mount.js'
export type { FactoryContext } from './servers.js'
