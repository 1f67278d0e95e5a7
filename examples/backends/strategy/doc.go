// Package strategy makes backends whose models decide themselves which requests share a batch: Volume by the size of their
// inputs, Single one by one. Both need a config with dynamic_batching, and a backend that is linked in:
//
//	cli.Main(nereid.WithBackend("identity_volume", strategy.Volume(identity.New)))
//
// They are a tutorial: what an author writes, with nothing but package sdk. A model that only wants these two names them by the parameter BATCH_STRATEGY,
// for which the server has its own.
//
// The server asks a strategy with its scheduler locked, so that nothing here waits or keeps a lock.
package strategy
