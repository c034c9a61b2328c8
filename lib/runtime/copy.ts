/** A copy that is to get more keys: of `{ ...value }` V8 makes a new hidden class every time that it does. */
export function copyOf<T extends object> (value: T): T {
  return Object.assign({}, value)
}
