// Package config knows what a model's configuration may say, and what it means
// where it says nothing. It knows neither where a model lies nor whether it is
// served: texts come in, and configurations, warnings and errors go out.
//
// A configuration is a *kserve.ModelConfig that goes through these states:
//
//	config.pbtxt, or JSON that came with a load
//	    │ ParseText, ParseJSON
//	    ▼
//	 written ─── Rules.Fill ──▶ filled ─── Rules.Complete(answer) ──▶ complete ─── JSON ──▶ clients, model.py
//	            name, backend,  │   the model's answer to auto-complete:
//	            defaults, groups│   tensors, batch size, scheduler
//	                            ├── Rules.CheckGroups: can its instances be placed?
//	                            ├── SelectVersions: which versions does it want?
//	                            ├── Compare: how far does it differ from the one in use?
//	                            └── CheckComposition: does an ensemble fit its models?
//
// Filling and completing a second time changes nothing. What is checked, in which
// order, and the texts are Triton's; testdata has its answers to the same configurations.
//
// Memory: Fill writes to the configuration that it is given, Complete copies it
// first, and everything else only reads: a filled configuration may be used by
// several goroutines. There is no lock and no state.
package config
