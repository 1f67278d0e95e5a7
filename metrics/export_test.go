package metrics

// Names for the tests in package metrics_test.

const InternalErrorsName = internalErrorsName
