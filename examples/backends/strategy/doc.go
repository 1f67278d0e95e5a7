// Package strategy creates backends whose models decide which requests share a batch: Volume limits
// the size of their inputs, Single executes each request alone. Both need a config with
// dynamic_batching, and a linked-in backend:
//
//	cli.Main(nereid.WithBackend("identity_volume", strategy.Volume(identity.New)))
//
// They are a tutorial that uses only package sdk. A model that only needs one of these two
// strategies can select it by the parameter BATCH_STRATEGY, which the server implements itself.
//
// The server calls a strategy with its scheduler locked, so nothing here waits or keeps a lock.
package strategy
