package openai

// Names for the tests in package openai_test.

var LoadTemplate = loadTemplate

var PythonFloat = pythonFloat
