// Package openai is the front end for clients of OpenAI's API: completions, chats and
// embeddings by text models, as Triton's OpenAI front end serves them, over http1 on a
// port of its own. It owns the routes, the form of every request to a model and the form
// of every reply.
//
//	http1 ── serve ── route ── fields ── generation.read ── server.InferOn ─┬─ single.take ── generation.whole
//	                            chat: jinja ──┘                             └─ generate.Stream ── stream ── generation.chunk
//
// A front end is made by New, which reads the template of chats, and then bound and run as
// one of package rest.
//
// A body is checked in this order: its length, the header of a restricted group, its
// syntax, its fields, whether the model is known, and unsupported fields. Errors have the
// texts of Triton's front end in "detail" and OpenAI's form in "error".
//
// State: a generation is read, executed once, replied, and released. Of the endpoints only
// the times at which models were first seen change, under endpoints.mu; no other lock is
// taken meanwhile.
//
// Goroutines: each request is served by the goroutine of its connection. A stream has a
// second one, which waits for the model (generate.Stream). A model that is
// faster than its client fills the window of its request and waits; a client that leaves
// cancels its request.
//
// Callers: package nereid, which runs the front end once.
//
// Memory: the text of a body is bounded and charged before it is read; nothing keeps a part
// of it after generation.read. Values and texts that serve to find the inputs, such as those of
// a chat, belong to the charge of the body (endpoints.whole). A generation owns its inputs
// until release. All replies are written into a buffer, which is charged before it grows, until
// the client has read it. Other allocations do not depend on the size of requests and
// responses. endpoints.charge makes all charges.
package openai
