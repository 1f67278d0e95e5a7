// Package backend is the contract between schedulers and the code that executes models: a Backend
// opens model versions, a Model has instances, an Instance executes batches. The package has
// interfaces, the values that cross them (Task, Batch, Report) and their clock (Now).
//
//	Backend.Open ──▶ Model ──AutoComplete──▶ ──Start──▶ instances ──Close──▶ nothing left
//	                                            available ⇄ lost
//
// Open only checks, AutoComplete may run the model's code once, Start starts all instances, and
// Close ends everything and returns when nothing is left. Between Start and Close an instance may
// be lost and become available again by itself; it reports that through Events. The other abilities
// are optional: Capabilities has those of an instance, ModelCapabilities those of a model.
// Innermost unwraps an instance.
//
// Package models opens, completes, starts and closes a Model, and exchanges its instances. These
// calls never overlap, except that Close may come at any time. A scheduler calls instances from any
// goroutine. It calls Execute again only after Done, or if Pipeliner.Ahead allows one more batch.
// An instance calls Batch.Done once and each task's Send until a final response. Both may be called
// inside Execute, and the scheduler may call Execute inside Done.
//
// Locks: the scheduler holds none of its locks when it calls Execute, Withdraw, Cancel, Ready or
// Await. It holds its lock when it calls Pipeliner.Ahead and a Strategy, which therefore neither
// block nor call back. A backend calls Events, Done and Send without any lock that Execute,
// Withdraw or Cancel takes, because the scheduler may call these at once.
//
// Memory: a task's inputs are read-only and stay valid until the task's last response is passed to
// Send. A response belongs to its receiver, which releases it; until then its outputs stay valid,
// even if the instance that made them is lost. A Batch and its Tasks belong to the instance from
// Execute to Done. After Done the instance keeps the tasks that have no final response yet, except
// those of a Refused report and the Rescheduled ones, which belong to the scheduler again.
package backend
