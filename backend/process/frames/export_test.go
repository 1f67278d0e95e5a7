package frames

// Names for the tests in package frames_test.

var ParseParameters = parseParameters
