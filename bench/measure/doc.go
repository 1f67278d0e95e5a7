// Package measure is shared by the programs of this folder: timed rounds, distributions of times,
// starting and stopping servers, processor time, ports, and tables.
package measure
