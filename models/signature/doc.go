// Package signature knows what the inputs and outputs of a model are, and whether a
// request fits.
//
// A Model is made of the final config of one version. Validate checks a request in
// Triton's order and with its texts, and completes it; ShapeOutputs gives the outputs
// of a response the shapes that clients know.
//
//	client's shapes ─▶ Validate ─▶ model's shapes ─▶ execution ─▶ ShapeOutputs ─▶ client's shapes
//
// A Model does not change: any number of goroutines use it at once, without a lock. Of a
// request it changes shapes, batch size and, where the request is raw, the name, type
// and data of its one input; it keeps nothing of requests or responses. A BYTES input in
// foreign memory is localized, as its elements are walked; of others the size is enough.
package signature
