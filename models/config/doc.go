// Package config interprets model configurations. It does not know where a model is stored or
// whether it is served: texts come in, and configurations, warnings and errors go out.
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
// Filling and completing a second time changes nothing. The checks, their order and their texts are
// Triton's; testdata has its answers to the same configurations.
//
// Fill writes to its configuration, Complete copies it first, and all other functions only read: a
// filled configuration may be used by several goroutines.
package config
