import t from 'tap'
import { bridges } from './bridge.js'

t.test('mcp-remote bridges over Streamable HTTP', async (t) => bridges(t, 'http'))
