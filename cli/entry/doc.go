// Package entry decides what a process was started as: by its name (argv[0]), its first argument and the environment that
// platforms set. Charts, KServe, SageMaker and Vertex AI start an image in forms of their own, and the binary understands
// them, so that an image needs no shell and no shell is process 1.
//
//	name or first argument        what it is                               Line
//	tritonserver                  tritonserver's command line              Args; no subcommand
//	serve                         SageMaker's start of a container         Args made of SAGEMAKER_…; Settings
//	nereid-entrypoint             the entry point of an image              one of the others, or Exec
//	nereid, any other name        the command nereid                       Args; Commands
//
// It parses no flags and starts no server: package cli does both with the Line. AwaitRoots is what MODEL_INIT_MODE=async
// asks for.
//
// States: none, but the files that it looks at. There is no lock and no goroutine.
//
// Callers: package cli, once for each process, before it reads any flag.
//
// Memory: nothing is kept.
package entry
