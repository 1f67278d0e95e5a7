package jsontext

// Names for the tests in package jsontext_test.

var ReadFloat = readFloat
