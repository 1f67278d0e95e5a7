// Package tensors makes and reads the tensors of commands that send requests: values by type and shape, values from JSON,
// and whether bytes and shape agree. The tensor is infer.Tensor, on the Go heap.
//
//	type and shape ── Fill ──▶ tensor ◀── Read ── values of JSON
//	                             └── Check
//
// It owns nothing and has no state: each function works on the tensor that it is given, whose Data it appends to.
//
// Callers: the commands below cli.
package tensors
