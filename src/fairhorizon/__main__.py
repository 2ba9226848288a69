"""python -m fairhorizon"""

from fairhorizon.cli.app import main

main()
