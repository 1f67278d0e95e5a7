package python

// Names for the tests in package python_test.

type Code = code
