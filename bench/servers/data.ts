// The same work for every server: an echo, a call that reports twice, 73 tools, and a result of about 100 KB.

export const TOKEN = 'bench-token'

export interface Row { id: number, name: string, region: string, tags: string[], score: number }

export const rows: Row[] = Array.from({ length: 760 }, (_, n) => ({
  id: n, name: `asset-${String(n).padStart(5, '0')}`, region: ['eu-west-1', 'us-east-1', 'ap-south-1'][n % 3]!, tags: [`team-${n % 7}`, `env-${n % 3}`, 'managed'], score: n / 8
}))

export interface PlainTool { name: string, description: string, inputSchema: { type: 'object', properties: Record<string, Record<string, unknown>>, required: string[], additionalProperties: false } }

/** 73 tools with six parameters each: about 59 KB as a list. */
export const plainTools: PlainTool[] = Array.from({ length: 73 }, (_, n) => ({
  name: `inventory_tool_${n}`,
  description: `Looks at part ${n} of the inventory and tells what is there, what is exposed, and what has changed since the last scan of it.`,
  inputSchema: {
    type: 'object',
    properties: {
      provider: { type: 'string', enum: ['aws', 'azure', 'gcp'], description: 'The cloud provider to look at' },
      region: { type: 'string', minLength: 1, maxLength: 64, description: 'Region as the provider names it' },
      limit: { type: 'integer', minimum: 1, maximum: 500, description: 'How many entries to return at most' },
      include_tags: { type: 'boolean', description: 'Return the tags of every entry too' },
      cursor: { type: 'string', description: 'Where the last page ended' },
      severity: { type: 'string', enum: ['low', 'medium', 'high', 'critical'] }
    },
    required: ['provider'],
    additionalProperties: false
  }
}))

export const slowMs = 200
