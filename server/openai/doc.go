// Package openai is the front end for clients of OpenAI's API: completions, chats and embeddings by
// text models, as in Triton's OpenAI front end, over http1 on its own port. It owns the routes, the
// form of every request to a model and the form of every reply.
//
//	http1 ── serve ── route ── fields ── generation.read ── server.InferOn ─┬─ Single.Take ── generation.whole
//	                            chat: jinja ──┘                             └─ generate.Stream ── stream ── generation.chunk
//
// New reads the template of chats and returns a front end, which is bound and run like one of
// package rest.
//
// A body is checked in this order: its length, the header of a restricted group, its syntax, its
// fields, whether the model is known, and unsupported fields. Errors have the texts of Triton's
// front end in "detail" and OpenAI's form in "error".
//
// Each request is served by the goroutine of its connection. A stream has a second one, which waits
// for the model (generate.Stream). A model that is faster than its client fills the window of its
// request and waits; a client that disconnects cancels its request. The endpoints keep only the
// times at which models were first seen, under endpoints.mu. No other lock is acquired under it.
//
// Memory: the text of a body is bounded and charged before it is read, and not used after
// generation.read. Temporary values, such as those of a chat, belong to the charge of the body
// (endpoints.whole). A generation owns its inputs until release. Replies are written into a buffer
// that is charged before it grows, until the client has read it. Other allocations do not depend on
// the size of requests and responses. endpoints.charge creates all charges.
package openai
