// Package form converts between text and tensors for the page: the fields of a model's inputs,
// their values from text, file or picture, and outputs as rows of numbers, texts, pictures, sounds,
// hex and files. It knows neither HTML nor HTTP.
//
//	config ── Fields ─▶ Field ── Read ─▶ infer.Tensor … infer.Response ── Collector.Take ─▶ Answer ─▶ Response, Output
//
// A Field belongs to one request. A Collector takes the responses of one request, from one
// goroutine at a time; Answer is called when the request has ended.
//
// Memory: Read charges the memory of a tensor, and for decoding a picture, before it allocates
// (TensorMemory). A Collector copies the shown part of a response, within a bound, and releases the
// response at once, so that it does not slow a stream.
//
// Trust: text and files are a client's, outputs a model's. Lengths and picture sizes are checked
// before memory is allocated for them. The output is text, which the caller escapes. Pictures are
// raster images by their first bytes, never SVG. Other bytes are URLs that a browser saves and does
// not show.
package form
