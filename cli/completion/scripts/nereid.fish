# Completion of nereid for fish: nereid completion fish > ~/.config/fish/completions/nereid.fish
function __nereid_complete
    set -l words (commandline -opc)
    set -l last (commandline -ct)
    set -l lines ($words[1] completion candidates -- $words[2..-1] $last 2>/dev/null)
    string join \n -- $lines[2..-1]
    set -l option (string match -r -- '^--[^=]*=' $last)
    switch "$lines[1]"
        case files
            __fish_complete_path (string replace -- "$option" '' $last) | string replace -r -- '^' "$option"
        case directories
            __fish_complete_directories (string replace -- "$option" '' $last) | string replace -r -- '^' "$option"
    end
end
complete -c nereid -f -a '(__nereid_complete)'
