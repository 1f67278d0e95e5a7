// Package providers has the front ends that managed platforms ask a container for: the
// protocols of Amazon SageMaker and of Vertex AI, as Triton has them. Each is a listener of
// its own that maps paths of its platform to the endpoints of package rest; what an
// endpoint does, and its errors, are that package's.
//
//	http1.Server ─┬─ sageMaker.serve ──┬─ rest.Endpoints.Infer, Generate
//	              │                    └─ multiModel.serve ── Repositories, server.Core
//	              └─ Vertex.serve ──────── rest.Endpoints.Infer, ServeAs
//
// States: a front end is made before the models are loaded. Vertex learns its model when it
// begins to listen, which is after that, and keeps it. SageMaker's models come and go: see
// multiModel.
//
// Callers: package nereid makes and runs each once. Requests are served by the goroutines
// of their connections. multiModel.mu guards which models SageMaker has loaded; nothing is
// called under it, and nothing else changes after Listen.
//
// Trust: SageMaker's requests name the directory of a model. It must lie below
// SageMakerConfig.ModelDirectory. Of its files this package reads only as much as tells an
// ensemble from its members.
//
// Memory: as in package rest.
package platforms
