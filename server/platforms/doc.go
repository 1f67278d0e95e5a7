// Package platforms has the front ends for managed platforms: the container protocols of Amazon
// SageMaker and Vertex AI, as in Triton. Each is a listener that maps the paths of its platform to
// the endpoints of package rest, which define the replies and errors.
//
//	http1.Server ─┬─ sageMaker.serve ──┬─ rest.Endpoints.Infer, Generate
//	              │                    └─ multiModel.serve ── Repositories, server.Core
//	              └─ Vertex.serve ──────── rest.Endpoints.Infer, ServeAs
//
// A front end is created before the models are loaded. Vertex finds its model when it begins to
// listen, after the load, and keeps it. SageMaker's models come and go: see multiModel. Its mu
// guards the set of models that SageMaker has loaded; nothing is called under it.
//
// Trust: SageMaker's requests name the directory of a model, which must be below
// SageMakerConfig.ModelDirectory. This package reads only as much of its files as it needs to
// distinguish an ensemble from its members.
package platforms
