package body

// Names for the tests in package body_test.

var NextSize = nextSize
