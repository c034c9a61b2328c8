// The types of Standard Schema and Standard JSON Schema, version 1, as https://standardschema.dev publishes them and asks
// for them to be copied: what we read of them, and no dependency.

export interface StandardSchemaV1<Input = unknown, Output = Input> {
  readonly '~standard': StandardSchemaV1.Props<Input, Output>
}

export declare namespace StandardSchemaV1 {
  interface Props<Input = unknown, Output = Input> {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => Result<Output> | Promise<Result<Output>>
    readonly types?: Types<Input, Output> | undefined
  }
  interface Types<Input = unknown, Output = Input> { readonly input: Input, readonly output: Output }
  type Result<Output> = SuccessResult<Output> | FailureResult
  interface SuccessResult<Output> { readonly value: Output, readonly issues?: undefined }
  interface FailureResult { readonly issues: readonly Issue[] }
  interface Issue { readonly message: string, readonly path?: ReadonlyArray<PropertyKey | PathSegment> | undefined }
  interface PathSegment { readonly key: PropertyKey }
  type InferInput<S extends StandardSchemaV1> = NonNullable<S['~standard']['types']>['input']
  type InferOutput<S extends StandardSchemaV1> = NonNullable<S['~standard']['types']>['output']
}

export declare namespace StandardJSONSchemaV1 {
  interface Props {
    readonly jsonSchema: Converter
  }
  interface Converter {
    readonly input: (options: Options) => Record<string, unknown>
    readonly output: (options: Options) => Record<string, unknown>
  }
  interface Options { readonly target: 'draft-2020-12' | 'draft-07' | 'openapi-3.0' | ({} & string) }
}
