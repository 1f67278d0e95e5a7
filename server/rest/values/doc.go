// Package values converts JSON values to elements of tensors and to parameters, and back, with the
// forms and errors of the KServe protocol as in Triton. It has no state.
//
// Memory: the caller allocates the destination in advance, by StringsSize or the number of
// elements, so that a client's text cannot make it grow. Output is appended to the caller's buffer.
package values
