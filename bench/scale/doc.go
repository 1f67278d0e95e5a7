// Command scale measures how much one server holds: models, instances of a model, connections,
// requests that wait, and what it does at the limit of descriptors and of processes. With -yardstick
// a Triton does the same beside it. It prints tables in Markdown; docs/scale.md has those of one
// machine. It is run in the root of the repository, after "make build".
//
// Processor time and memory hold on a busy machine. Times by the clock are those of a machine that
// does nothing else.
package main
