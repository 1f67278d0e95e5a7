// Package measure has the code that the programs of this folder share: timed rounds, distributions
// of times, starting and stopping servers, processor time, ports, and tables.
package measure
