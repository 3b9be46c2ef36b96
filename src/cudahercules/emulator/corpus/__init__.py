"""What experts ship, as a measure of the emulator: which of it consists of known instructions only.

``manifest.py`` reads the list of files, ``wheels.py`` fetches the packages that hold them, ``compiled.py``
makes PTX, and ``survey.py`` says for each file and target whether the emulator takes it. Nothing of it is
kept in this repository but the list, and small sources that instantiate a library's templates.
"""
