package server

import "github.com/nereid-serving/nereid/infer"

// ErrTracesOff refuses the settings of traces.
var ErrTracesOff = &infer.Error{Code: infer.Unsupported, Message: "This server does not support traces."}
