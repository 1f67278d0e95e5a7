// Package values reads the values of JSON as elements of tensors and as parameters, and
// writes these as JSON, in the forms and with the errors of the KServe protocol as Triton
// has them. It knows neither requests nor responses, keeps nothing and has no state: any
// goroutine may call it.
//
// Memory: what is read goes into memory that the caller has measured and taken before
// (StringsSize, or the number of elements), so that a client's text cannot make it grow;
// what is written is appended to the caller's buffer.
package values
