package stacked

// Element is exported for the tests in package stacked_test.

var Element = element
