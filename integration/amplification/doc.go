// Package amplification sends the worst messages that the descriptions of the server allow to a
// server in this process, and compares its live heap with its account. The messages are generated:
//
//   - calls and messages from the protobuf descriptors,
//   - endpoints, JSON bodies and bodies that are tensors from the OpenAPI document that the server
//     serves,
//   - parameters, paths and fields of OpenAI's API from the literals in the sources that read them,
//   - configs of models from the descriptor of the message that describes them,
//   - frames of model processes from the golden frames of package ipc.
//
// A new call, field, endpoint, parameter or kind of frame is covered as soon as it is described.
//
//	test ── server, PeakHeap ◀── sockets ── client: the same binary, which generates and sends
//	  └──────────── one line for each volley ────▶ ┘
//
// The copies of a body are sent plain, gzipped and deflated in turn. Most messages go to one model,
// which runs in a process of its own: the same binary again.
//
// The package contains only tests.
package amplification
