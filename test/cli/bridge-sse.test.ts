import t from 'tap'
import { bridges } from './bridge.js'

t.test('mcp-remote bridges over HTTP+SSE', async (t) => bridges(t, 'sse'))
