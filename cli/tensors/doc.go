// Package tensors creates and reads the tensors of commands that send requests: values by type and
// shape, values from JSON, and a check that bytes and shape agree. Tensors are infer.Tensors on the
// Go heap.
//
//	type and shape ── Fill ──▶ tensor ◀── Read ── values of JSON
//	                             └── Check
//
// The package has no state: each function works on the given tensor, and appends to its Data.
package tensors
