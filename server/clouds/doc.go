// Package clouds has the front ends that managed platforms ask a container for: the
// protocols of Amazon SageMaker and of Vertex AI, as Triton has them. Each is a listener of
// its own that maps paths of its platform to the endpoints of package rest; what an
// endpoint does, and its errors, are that package's.
//
//	http1.Server ── SageMaker.serve ─┬─ rest.Endpoints.Infer, Generate
//	                Vertex.serve    ─┴─ rest.Endpoints.ServeAs
//
// States: a front end is made before the models are loaded. Vertex learns its model when it
// begins to listen, which is after that, and keeps it.
//
// Callers: package nereid makes and runs each once. Requests are served by the goroutines
// of their connections; nothing changes after Listen, and there is no lock.
//
// Memory: as in package rest.
package clouds
