// Errors of an application developer: a bad option, a duplicate name, a schema that cannot be served. They are thrown at
// registration, never sent to a caller. What a caller did wrong is answered on the wire (lib/jsonrpc.ts, lib/layer/errors.ts).

import createError from '@fastify/error'

/** An option has a value that cannot work, or is not known. The message names the option and what was expected. */
export const InvalidOptionError = createError<'CLOUDG_MCP_ERR_INVALID_OPTION', 500, [message: string]>(
  'CLOUDG_MCP_ERR_INVALID_OPTION', '%s', 500)

/** A tool, resource, template or prompt is registered already. */
export const DuplicateError = createError<'CLOUDG_MCP_ERR_DUPLICATE', 500, [kind: string, key: string]>(
  'CLOUDG_MCP_ERR_DUPLICATE', "Duplicate %s '%s'", 500)

/** A tool or prompt name that clients refuse. `kind` may say that it is the exposed (prefixed) name that is wrong. */
export const InvalidNameError = createError<'CLOUDG_MCP_ERR_INVALID_NAME', 500, [kind: string, name: string]>(
  'CLOUDG_MCP_ERR_INVALID_NAME', "Invalid %s name '%s'", 500)

/** A prefix for names with characters, or of a length, that names cannot have. */
export const InvalidPrefixError = createError<'CLOUDG_MCP_ERR_INVALID_PREFIX', 500, [prefix: string]>(
  'CLOUDG_MCP_ERR_INVALID_PREFIX', "Invalid prefix '%s': use up to 64 of A-Z a-z 0-9 _ . -", 500)

/** An input or output schema that cannot be advertised or checked. The message names the tool and the field. */
export const InvalidSchemaError = createError<'CLOUDG_MCP_ERR_INVALID_SCHEMA', 500, [message: string]>(
  'CLOUDG_MCP_ERR_INVALID_SCHEMA', '%s', 500)

/** A URI template with syntax that is not served, or one that could match in more ways than one. */
export const InvalidTemplateError = createError<'CLOUDG_MCP_ERR_INVALID_TEMPLATE', 500, [message: string]>(
  'CLOUDG_MCP_ERR_INVALID_TEMPLATE', '%s', 500)

/** A path that leaves the directory it was to stay in. The path itself is not repeated: it came from a caller. */
export const UnsafePathError = createError<'CLOUDG_MCP_ERR_UNSAFE_PATH', 500, [reason: string]>(
  'CLOUDG_MCP_ERR_UNSAFE_PATH', 'Unsafe path: %s', 500)

/** Something was given as an MCP server of another kind that is none that is known. The message says what it is and what is supported. */
export const UnsupportedServerError = createError<'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', 500, [message: string]>(
  'CLOUDG_MCP_ERR_UNSUPPORTED_SERVER', '%s', 500)

/** What the processes share cannot be reached: at the start, or while a request needed it. */
export const BackplaneUnavailableError = createError<'CLOUDG_MCP_ERR_BACKPLANE_UNAVAILABLE', 503, [why: string]>(
  'CLOUDG_MCP_ERR_BACKPLANE_UNAVAILABLE', 'The backplane cannot be reached: %s', 503)
