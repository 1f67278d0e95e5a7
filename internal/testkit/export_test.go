package testkit

// Names for the tests in package testkit_test.

const CompleteVariable = completeVariable

const PythonsVariable = pythonsVariable
