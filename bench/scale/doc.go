// Command scale measures the capacity of one server: models, instances of a model, connections,
// waiting requests, and its behavior at the limits of descriptors and of processes. With -yardstick
// it measures a Triton in the same way. It prints tables in Markdown; docs/scale.md has those of
// one machine. Run it in the root of the repository, after "make build".
//
// Processor time and memory are valid on a busy machine; wall-clock times need an idle one.
package main
