package stateful

// Names for the tests in package stateful_test.

var NewModel = newModel
