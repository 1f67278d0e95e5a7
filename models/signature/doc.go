// Package signature knows the inputs and outputs of a model, and whether a request fits them.
//
// A Model is made from the final config of one version. Validate checks a request in Triton's order
// and with its texts, and completes it; ShapeOutputs converts the outputs of a response to the
// shapes that clients know.
//
//	client's shapes ─▶ Validate ─▶ model's shapes ─▶ execution ─▶ ShapeOutputs ─▶ client's shapes
//
// A Model is immutable: any number of goroutines use it concurrently, without a lock. Validate
// changes the request's shapes and batch size and, for a raw request, the name, type and data of
// its one input. It keeps no reference to requests or responses. A BYTES input in foreign memory is
// localized, because its elements are read; for other types the size is enough.
package signature
