// The part of the conformance fixture in which the server asks the client: sampling, elicitation, roots, and a stream closed mid-call.
// One handler serves both eras wherever the suite allows it; the ones that state their own rounds use inputRequired().

import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { elicit, inputRequired, listRoots, sample } from '../../lib/layer/index.js'
import type { AppLayer, ContentBlock, SamplingParams } from '../../lib/layer/index.js'

// How long a client of test_reconnection has to come back before the call ends.
const RECONNECT_MS = 100

const capital = prompt('What is the capital of France?', 100)

export function addAskingTools (layer: AppLayer): void {
  addLiveTools(layer)
  addElicitationSchemas(layer)
  addRounds(layer)
  addStatefulRounds(layer)
  addCapabilityTools(layer)
}

function addLiveTools (layer: AppLayer): void {
  layer.tool('test_sampling', { description: 'Lets the client\'s model answer a prompt', input: { prompt: z.string() } }, async ({ prompt: question }, ctx) => {
    const { content } = await ctx.sample(prompt(question, 100))
    return text(`LLM response: ${JSON.stringify(content)}`)
  })

  layer.tool('test_elicitation', { description: 'Asks the user for a name and an address', input: { message: z.string() } }, async ({ message }, ctx) => {
    const { action, content } = await ctx.elicit(message, {
      type: 'object',
      properties: {
        username: { type: 'string', description: 'User name' },
        email: { type: 'string', description: 'E-mail address' }
      },
      required: ['username', 'email']
    })
    return text(`User response: action=${action}, content=${JSON.stringify(content ?? {})}`)
  })

  layer.tool('test_reconnection', { description: 'Closes its own stream and ends when the client has come back' }, async (_args, ctx) => {
    ctx.closeStream()
    await sleep(RECONNECT_MS)
    return text('Reconnection test completed')
  })
}

function addElicitationSchemas (layer: AppLayer): void {
  layer.tool('test_elicitation_sep1034_defaults', { description: 'Asks with a default for every primitive type' }, async (_args, ctx) => {
    const { action, content } = await ctx.elicit('Please review the defaults', {
      type: 'object',
      properties: {
        name: { type: 'string', description: 'User name', default: 'John Doe' },
        age: { type: 'integer', description: 'User age', default: 30 },
        score: { type: 'number', description: 'User score', default: 95.5 },
        status: { type: 'string', description: 'User status', enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', description: 'Verification status', default: true }
      },
      required: []
    })
    return text(`Elicitation completed: action=${action}, content=${JSON.stringify(content ?? {})}`)
  })

  layer.tool('test_elicitation_sep1330_enums', { description: 'Asks with every form of enumeration' }, async (_args, ctx) => {
    const { action, content } = await ctx.elicit('Please choose', {
      type: 'object',
      properties: {
        untitledSingle: { type: 'string', description: 'One of three', enum: ['option1', 'option2', 'option3'] },
        titledSingle: {
          type: 'string',
          description: 'One of three, with titles',
          oneOf: [
            { const: 'value1', title: 'First Option' },
            { const: 'value2', title: 'Second Option' },
            { const: 'value3', title: 'Third Option' }
          ]
        },
        legacyEnum: {
          type: 'string',
          description: 'One of three, with titles of the old form',
          enum: ['opt1', 'opt2', 'opt3'],
          enumNames: ['Option One', 'Option Two', 'Option Three']
        },
        untitledMulti: {
          type: 'array',
          description: 'Some of three',
          minItems: 1,
          maxItems: 3,
          items: { type: 'string', enum: ['option1', 'option2', 'option3'] }
        },
        titledMulti: {
          type: 'array',
          description: 'Some of three, with titles',
          minItems: 1,
          maxItems: 3,
          items: {
            anyOf: [
              { const: 'value1', title: 'First Choice' },
              { const: 'value2', title: 'Second Choice' },
              { const: 'value3', title: 'Third Choice' }
            ]
          }
        }
      },
      required: []
    })
    return text(`Elicitation completed: action=${action}, content=${JSON.stringify(content ?? {})}`)
  })
}

function addRounds (layer: AppLayer): void {
  // The suite answers this one before it was asked, without a state to go with it: ctx.elicit() would ask again, and may.
  layer.tool('test_input_required_result_elicitation', { description: 'Asks for a name and greets' }, (_args, ctx) => {
    const question = elicit('What is your name?', { name: z.string() })
    const answer = question.read(ctx.inputResponses['user_name'])
    if (answer === undefined) return inputRequired({ requests: { user_name: question } })
    return text(answer.action === 'accept' ? `Hello, ${answer.content.name}!` : 'Hello!')
  })

  layer.tool('test_input_required_result_sampling', { description: 'Lets the client\'s model name a capital' }, async (_args, ctx) => {
    const { content } = await ctx.sample(capital, { key: 'capital_question' })
    return text(`The model says: ${JSON.stringify(content)}`)
  })

  layer.tool('test_input_required_result_list_roots', { description: 'Asks for the roots' }, async (_args, ctx) => {
    const roots = await ctx.listRoots({ key: 'client_roots' })
    return text(`Roots: ${JSON.stringify(roots)}`)
  })

  layer.prompt('test_input_required_result_prompt', { description: 'A prompt that asks for its context' }, async (_args, ctx) => {
    const { content } = await ctx.elicit('What context should the prompt use?', { context: z.string() }, { key: 'user_context' })
    return `Use this context: ${content?.context}`
  })

  // Any answer will do: what is asserted is that the response stream carries no request.
  layer.tool('test_streaming_elicitation', { description: 'Asks for a confirmation' }, async (_args, ctx) => {
    const { action } = await ctx.elicit('Please confirm', { ok: z.boolean() }, { key: 'confirm' })
    return text(`action=${action}`)
  })
}

function addStatefulRounds (layer: AppLayer): void {
  for (const name of ['test_input_required_result_request_state', 'test_input_required_result_tampered_state']) {
    layer.tool(name, { description: 'Asks for a confirmation and wants its own state back' }, (_args, ctx) => {
      if (ctx.requestState === 'confirming' && ctx.inputResponses['confirm'] !== undefined) return text('state-ok')
      return inputRequired({ requests: { confirm: elicit('Please confirm', { ok: z.boolean() }) }, state: 'confirming' })
    })
  }

  layer.tool('test_input_required_result_multiple_inputs', { description: 'Asks for three things at once' }, (_args, ctx) => {
    const requests = {
      user_name: elicit('What is your name?', { name: z.string() }),
      greeting: sample(prompt('Generate a greeting', 50)),
      client_roots: listRoots()
    }
    const missing = Object.keys(requests).filter((key) => ctx.inputResponses[key] === undefined)
    return missing.length === 0 ? text('All three were answered') : inputRequired({ requests, state: 'asked' })
  })

  layer.tool('test_input_required_result_multi_round', { description: 'Asks twice, one question after the other' }, (_args, ctx) => {
    const { step1, step2 } = ctx.inputResponses
    if (ctx.requestState === 'second' && step2 !== undefined) return text('Both questions were answered')
    if (ctx.requestState === 'first' && step1 !== undefined) {
      return inputRequired({ requests: { step2: elicit('Step 2: What is your favorite color?', { color: z.string() }) }, state: 'second' })
    }
    return inputRequired({ requests: { step1: elicit('Step 1: What is your name?', { name: z.string() }) }, state: 'first' })
  })
}

function addCapabilityTools (layer: AppLayer): void {
  layer.tool('test_missing_capability', { description: 'Is of use only to a client with a model' }, async (_args, ctx) => {
    const { content } = await ctx.sample(capital, { key: 'capital_question' })
    return text(`The model says: ${JSON.stringify(content)}`)
  })

  layer.tool('test_input_required_result_capabilities', { description: 'Asks for no more than the client can answer' }, async (_args, ctx) => {
    if (ctx.clientCapabilities['sampling'] !== undefined) await ctx.sample(capital, { key: 'capital_question' })
    if (ctx.clientCapabilities['elicitation'] !== undefined) await ctx.elicit('What is your name?', { name: z.string() }, { key: 'user_name' })
    return text('Asked for what the client can answer')
  })
}

function prompt (question: string, maxTokens: number): SamplingParams {
  return { messages: [{ role: 'user', content: { type: 'text', text: question } }], maxTokens }
}

function text (value: string): ContentBlock[] {
  return [{ type: 'text', text: value }]
}
