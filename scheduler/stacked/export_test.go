package stacked

// Names for the tests in package stacked_test.

var Element = element
