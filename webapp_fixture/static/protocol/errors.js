// Errors as ABP answers them.

export class AbpError extends Error {
  constructor(code, message, more = {}) {
    super(message);
    this.name = 'AbpError';
    this.code = code;
    this.more = more;
  }

  toJSON() {
    return { code: this.code, message: this.message, retryable: false, ...this.more };
  }
}

/** Thrown by a handler that the user (or the client) stopped. */
export class Cancelled extends Error {
  constructor(reason) {
    super(reason ?? 'cancelled');
    this.name = 'Cancelled';
  }
}

/** Returned by a handler that wants this very value to be the answer of `call`. Only faults do. */
export class RawAnswer {
  constructor(value) {
    this.value = value;
  }
}

/** Any thrown value as an ABP error. */
export function describeError(thrown) {
  if (thrown instanceof AbpError) return thrown.toJSON();
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  const details = thrown instanceof Error ? { name: thrown.name } : { thrown: typeof thrown };
  return { code: 'OPERATION_FAILED', message: message || 'the operation failed', retryable: false, details };
}
