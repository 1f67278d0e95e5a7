package backends

// Names for the tests in package backends_test.

var ModelsOf = modelsOf
