// Package form turns what a person types into tensors, and tensors into what a person reads: the
// fields of a model's inputs, the values of each as text, file or picture, and outputs as rows of
// numbers, texts, pictures, sounds, hex and files. It knows neither HTML nor HTTP.
//
//	config ── Fields ─▶ Field ── Read ─▶ infer.Tensor … infer.Response ── Collector.Take ─▶ Answer ─▶ Response, Output
//
// State: a Field is filled by one request and belongs to it. A Collector takes the responses of one
// request, from one goroutine at a time, as a Sender is called; its Answer is read when the request
// has ended. Nothing else has a state, and there is no lock.
//
// Memory: Read asks for the memory of a tensor, and for that of decoding a picture, before it takes
// either (Room). A Collector copies the part
// of a response that is shown, within a bound, and releases the response at once: a model that
// streams is not held up.
//
// Trust: text and files are a client's, outputs a model's. Lengths and pictures' sizes are checked before
// memory is taken for them. What comes out is text that the caller escapes, but for
// pictures, which are raster images by their first bytes, never SVG, and sounds; other bytes are URLs that a browser saves and does not show.
package form
