// What the official conformance suite expects a server to offer: tools, resources and prompts under names that it knows.
// Names, texts and schemas are the suite's; the layer is built with nothing but the public API. Tools that ask the client: asking.ts.

import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { createLayer, ToolError } from '../../lib/layer/index.js'
import type { AppLayer } from '../../lib/layer/index.js'
import { addAskingTools } from './asking.js'

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=='
const WAV = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA='

// The suite wants the notifications of one call apart in time, so that a server that keeps them until the reply is seen to do so.
const STEP_MS = 50

export function createFixture (): AppLayer {
  const layer = createLayer({ name: 'cloudg-mcp-conformance', version: '1.0.0' })
  addContentTools(layer)
  addNotifyingTools(layer)
  addSchemaTools(layer)
  addAskingTools(layer)
  addResources(layer)
  addPrompts(layer)
  return layer
}

function addContentTools (layer: AppLayer): void {
  layer.tool('test_simple_text', { description: 'Answers with one text block' }, () =>
    [{ type: 'text', text: 'This is a simple text response for testing.' }])

  layer.tool('test_image_content', { description: 'Answers with one image block' }, () =>
    [{ type: 'image', data: PNG, mimeType: 'image/png' }])

  layer.tool('test_audio_content', { description: 'Answers with one audio block' }, () =>
    [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }])

  layer.tool('test_embedded_resource', { description: 'Answers with one embedded resource' }, () =>
    [{
      type: 'resource',
      resource: { uri: 'test://embedded-resource', mimeType: 'text/plain', text: 'This is an embedded resource content.' }
    }])

  layer.tool('test_multiple_content_types', { description: 'Answers with text, an image and a resource' }, () =>
    [
      { type: 'text', text: 'Multiple content types test:' },
      { type: 'image', data: PNG, mimeType: 'image/png' },
      {
        type: 'resource',
        resource: {
          uri: 'test://mixed-content-resource',
          mimeType: 'application/json',
          text: JSON.stringify({ test: 'data', value: 123 })
        }
      }
    ])

  layer.tool('test_error_handling', { description: 'Always fails' }, () => {
    throw new ToolError('This tool intentionally returns an error for testing')
  })
}

function addNotifyingTools (layer: AppLayer): void {
  layer.tool('test_tool_with_logging', { description: 'Sends three log messages' }, async (_args, ctx) => {
    await ctx.notify.log('info', 'Tool execution started')
    await sleep(STEP_MS)
    await ctx.notify.log('info', 'Tool processing data')
    await sleep(STEP_MS)
    await ctx.notify.log('info', 'Tool execution completed')
    return [{ type: 'text', text: 'Tool with logging executed successfully' }]
  })

  layer.tool('test_tool_with_progress', { description: 'Reports progress three times' }, async (_args, ctx) => {
    for (const done of [0, 50, 100]) {
      if (done > 0) await sleep(STEP_MS)
      await ctx.progress(done, 100, `Completed step ${done} of 100`)
    }
    return [{ type: 'text', text: 'Tool with progress executed successfully' }]
  })

  layer.tool('test_logging_tool', { description: 'Logs, for callers that may not have asked for it' }, async (_args, ctx) => {
    await ctx.notify.log('info', 'A message that only a caller with a log level may see')
    return [{ type: 'text', text: 'Logged' }]
  })

  layer.tool('test_trigger_tool_change', { description: 'Announces that the tools have changed' }, () => {
    layer.notifyChanged('tools')
    return [{ type: 'text', text: 'Announced' }]
  })

  layer.tool('test_trigger_prompt_change', { description: 'Announces that the prompts have changed' }, () => {
    layer.notifyChanged('prompts')
    return [{ type: 'text', text: 'Announced' }]
  })
}

function addSchemaTools (layer: AppLayer): void {
  layer.tool('test_x_mcp_header', {
    description: 'Has an argument that travels in a header as well',
    input: {
      type: 'object',
      properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, level: { type: 'integer' } }
    }
  }, ({ region }) => [{ type: 'text', text: `region=${region ?? '<none>'}` }])

  layer.tool('json_schema_2020_12_tool', {
    description: 'Has an input schema with keywords of JSON Schema 2020-12',
    input: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      $defs: {
        address: {
          $anchor: 'addressDef',
          type: 'object',
          properties: { street: { type: 'string' }, city: { type: 'string' } }
        }
      },
      properties: {
        name: { type: 'string' },
        address: { $ref: '#/$defs/address' },
        contactMethod: { type: 'string', enum: ['phone', 'email'] },
        phone: { type: 'string' },
        email: { type: 'string' }
      },
      allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
      if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
      then: { required: ['phone'] },
      else: { required: ['email'] },
      additionalProperties: false
    }
  }, (args) => [{ type: 'text', text: `JSON Schema 2020-12 tool called with: ${JSON.stringify(args)}` }])
}

function addResources (layer: AppLayer): void {
  layer.resource('test://static-text', {
    name: 'static-text', description: 'A text that never changes', mimeType: 'text/plain'
  }, () => 'This is the content of the static text resource.')

  layer.resource('test://static-binary', {
    name: 'static-binary', description: 'An image that never changes', mimeType: 'image/png'
  }, () => Buffer.from(PNG, 'base64'))

  layer.resource('test://watched-resource', {
    name: 'watched-resource', description: 'A text to subscribe to', mimeType: 'text/plain'
  }, () => 'Watched resource content')

  layer.resourceTemplate('test://template/{id}/data', {
    name: 'template', description: 'Data for any id', mimeType: 'application/json'
  }, ({ id }) => ({ id, templateTest: true, data: `Data for ID: ${id}` }))
}

function addPrompts (layer: AppLayer): void {
  layer.prompt('test_simple_prompt', { description: 'A prompt without arguments' }, () =>
    'This is a simple prompt for testing.')

  layer.prompt('test_prompt_with_arguments', {
    description: 'A prompt with two required arguments',
    arguments: {
      arg1: { complete: (prefix: string) => ['test', 'testing', 'paris'].filter((value) => value.startsWith(prefix)) },
      arg2: z.string()
    }
  }, ({ arg1, arg2 }) => `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)

  layer.prompt('test_prompt_with_embedded_resource', {
    description: 'A prompt that carries the resource that it is about',
    arguments: { resourceUri: z.string() }
  }, ({ resourceUri }) => [
    {
      type: 'resource',
      resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' }
    },
    { type: 'text', text: 'Please process the embedded resource above.' }
  ])

  layer.prompt('test_prompt_with_image', { description: 'A prompt that carries an image' }, () => ({
    messages: [
      { role: 'user', content: { type: 'image', data: PNG, mimeType: 'image/png' } },
      { role: 'user', content: { type: 'text', text: 'Please analyze the image above.' } }
    ]
  }))
}
