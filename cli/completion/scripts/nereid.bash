# Completion of nereid for bash 4.3 or newer: source <(nereid completion bash)
_nereid() {
	local words=() word files line last strip=
	local i
	# Bash parts words at = and :, which stand inside of ours.
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if ((${#words[@]})) && [[ $word == [=:] || ${COMP_WORDS[i - 1]} == [=:] ]]; then
			words[-1]+=$word
		else
			words+=("$word")
		fi
	done
	last=${words[-1]}
	[[ $last == --*=* ]] && strip=${last%%=*}=
	COMPREPLY=()
	{
		read -r files
		while IFS= read -r line; do
			word=${line%%$'\t'*}
			COMPREPLY+=("${word#"$strip"}")
		done
	} < <("${COMP_WORDS[0]}" completion candidates -- "${words[@]}" 2>/dev/null)
	last=${last#"$strip"}
	case $files in
	files)
		compopt -o filenames
		mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$last")
		;;
	directories)
		compopt -o filenames
		mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$last")
		;;
	esac
}
complete -F _nereid nereid
